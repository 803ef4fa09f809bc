"""Random whole networks, the same text run by graphc and by PyTorch.

network.py    a network as data: steps, each of a kind, that read values made before
kinds/        what kinds of steps there are, a file per family
draw.py       a seed -> a network
write.py      a network -> the text of a module and its loss
sides.py      the names that the text uses, in graphc and in PyTorch
truth.py      what PyTorch computes, and how far rounding moves it
check.py      what graphc computes, and what differs
workers.py    networks in a process of their own, each with a time limit
shrink.py     a network that fails -> a smaller one that fails in the same way

`python -m tests.networks SEED` checks one; `--shrink` prints the smallest program that fails.
"""
