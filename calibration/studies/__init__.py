"""What is to be trained, who trains it where, what laws prescribe from it, and which law was right."""
