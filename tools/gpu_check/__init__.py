"""Check what graphc does on this machine's GPU, with one JSON file as the result: `make gpu-check`.

`stages.py` lists the stages in order of value; `report.py` writes the file after every stage and
every measurement; `process.py` terminates what exceeds its time; `smoke.py` is the first stage,
which needs next to nothing; `goals.py` lists the measurements, `benchmarks.py` takes them and
`comparison.py` compares graphc with PyTorch; `host.py` and `bandwidth.py` are further stages;
`machine.py` describes the machine and installs what is missing from a folder of wheels.
"""
