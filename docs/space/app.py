"""The page as a Hugging Face Space: upload this file and requirements.txt, and choose the Gradio SDK."""

from calibration.ui.page import launch

if __name__ == "__main__":
    launch("0.0.0.0", 7860)
