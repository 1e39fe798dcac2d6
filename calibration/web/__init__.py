"""The service: planning and fitting over HTTP, and the page on top of it.

server    what `planner serve` starts          api     the routes of /v1, made from the calls of Python
limits    what a request must be before it is  jobs    strangers' files, in processes of their own (worker)
          read, and how many at once           store   calibrations that visitors brought or fitted
metrics   what is counted for Prometheus       docs    /docs, in plain HTML
"""
