"""A reference model of cgroup v2, and random sequences that are judged by it. In reading order:

    act         Act, Case, Ran: an operation, a sequence, what came of it
    numbers     how the kernel reads numbers
    versions    what differs between kernels, as rows with their source
    files       files that hold a value: what may be written, what a read says
    cgroup      the tree: apply(state, act, kernel) -> state, what must be seen
    draw        seed -> random cases (Hypothesis), with known defects masked
    carry       cases -> the guest's script, and its outcomes back
    explain     does the model explain a run? one after the other, or in some order
    shrink      make a failing case small
    driver      all of it together -> Verdict

`cgroup` knows how a kernel behaves, and nothing of guests; everything before `carry` runs without one.
"""
