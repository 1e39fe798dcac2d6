"""Train the runs of a study: what they are (`study`), where they live (`directory`), who trains them (`local`, `cluster`)."""
