"""Models of torchvision, timm and transformers through `torch.compile(model, backend="graphc")`.

    python -m benchmarks.torch_models --out FOLDER           check every model
    python -m benchmarks.torch_models --out FOLDER --times   measure them
    python -m benchmarks.torch_models --out FOLDER --page docs/torch-models.md   write the table

models.py, vision.py, timm_models.py, language.py, own.py   the models, small, with random weights
truth.py     what PyTorch computes of a model in float64, and how far rounding may move it
kinks.py     relus that stand at 0, where rounding decides the gradient
check.py     a model's results through graphc beside the truth
times.py     how long compiling and steps take beside eager PyTorch and inductor
processes.py, __main__.py   each model in a process of its own, with a time limit
page.py      the table

The packages are needed for their architectures alone: nothing is downloaded.
"""
