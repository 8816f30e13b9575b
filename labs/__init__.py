"""A lab that proves kernel and container-runtime patches. Read it in the order in which data flows:

    catalog     what may be asked for: kernels, runtimes, images, known defects
    source      where it comes from: the Debian archive, releases, local trees, commits
    store       where made things are kept, named by what went in
    series      patches: read, checked, examined against trees, applied whole or not at all
    build       kernels and runtimes from source, in a sandbox; root image, box, initramfs, agent
    matrix      Cell: one kernel x runtime x variant x series x provider
    matrixfile  the cells of a matrix file: what is left out and why, sets, sizes (feature: what suites need of a cell)
    prepare     Cell -> Artifacts -> a guest that is proven to be what was asked
    provision   the host's accelerator and budget; providers: QEMU, Vagrant in an enclosure, machines that already run
    guest       a running machine: run, put, get, facts
    console     what the kernel said, live (signatures: how it says it)
    promise     what the kernel promises, as scripts with what must come of each operation
    model       a small cgroup v2 in Python, and random sequences that it must explain
    probe       what was done in the guest -> History, Outcome
    invariant   pure functions: History -> Verdict
    judged      what a verdict was judged of, kept and judged again
    report      Record on disk -> JUnit, HTML; many runs -> what changed, Markdown, what stands against shipping
    pipeline    a matrix file -> the files of CI services
    casebook    what a suite works with: a cell's guest, its histories, its record
    executed    which functions that a series changes run in a guest, seen from outside
    child       a pytest session asked from the outside, its record read
    prove       the suite against planted defects: each invariant must fail on its own
    run         many cells in one run: planned and pinned, built once, in parallel, resumable
    compare     two cells compared by how long operations take, boot by boot
    signoff     is a series safe to ship? its cells, the rules, sign-off.json and its check; capsules
    bisect      the first bad, or first good, kernel, runtime, patch, commit or option by one case of a suite
    runbook     one pytest session: the cells asked for, what they name, the run that all of it goes to

Imports run one way, later stages import earlier ones only; errors, untrusted, deadline, command, tomlfile and
version serve all.
`labs` never imports pytest: `conftest.py` is the only bridge.
"""
