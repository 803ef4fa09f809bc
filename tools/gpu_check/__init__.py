"""What graphc does on this machine's GPU, as one JSON file: `make gpu-check`.

`stages.py` says what is done, in order of value; `report.py` writes the file after every stage and
every measurement; `process.py` ends what takes longer than there is time; `smoke.py` is the first
stage, which needs next to nothing; `goals.py` says what is measured, `benchmarks.py` measures it
and `comparison.py` sets graphc beside PyTorch; `host.py` and `bandwidth.py` are stages of their
own; `machine.py` says where all this ran and installs what is missing from a folder of wheels.
"""
