"""A model of how fast the CUDA kernels should be on a GPU that is not present; nothing is measured.

It compiles the steps of workloads for the GPU and reads the machine code. Walks of single threads
execute the integer instructions that decide branches and addresses, so that instructions by kind,
bytes by width, sectors and bank conflicts are counted as they would be executed, for any template.
`machine.py` has the constants that turn counts into time, each with its source, and the formula.
Ratios of two versions of one kernel deserve more trust than times, and times of large kernels more
than those of small ones.
"""
