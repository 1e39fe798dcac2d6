"""The web page: `planner ui`.

    state      what the visitor has chosen, and how that is written into the address
    answers    from the choices to a Plan, and to calls that reproduce it
    markup     the answer as HTML; every text that comes from outside is escaped
    pictures   interactive figures (plotly)
    shelf      calibrations that visitors brought
    jobs       files from strangers are read by a process of its own (`worker`), with limits on memory and time
    page       the layout and what happens when something changes (Gradio)

Nothing here phones home: the switches below are set before Gradio is imported anywhere.
"""

import os

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
