"""The web page: `planner ui`.

    state         what the visitor has chosen, and how that is written into the address
    answers       from the choices to a Plan, and to calls that reproduce it
    markup        the answer as HTML; every text that comes from outside is escaped
    pictures      interactive figures (plotly)
    kept          calibrations that visitors brought or fitted, and the files of their fits
    file_jobs     files from strangers are read by a process of its own (`file_worker`), with limits
    layout        what the page consists of (Gradio)
    page          what happens when something changes
    server        serves it

Nothing here phones home: the switches below are set before Gradio is imported anywhere.
"""

import os

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
