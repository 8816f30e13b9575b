"""Bisect: the first bad, or the first good, candidate along any ordered axis. In the order in which data flows:

    step        what came of one run of one candidate, and the log of steps on disk
    plan        candidates in order, what is asked of them; steps counted by candidate
    posterior   noise: where the change is, how likely, and which run tells most
    segments    outcomes that change more than once
    search      plan and steps -> the next question, or the answer; pure, so a log replays and resumes
    subset      the fewest patches that still show it (delta debugging)
    drive       asks a judge until there is an answer
    axes        kernels, runtimes, patches of a series, as candidates and cells
    guests      the judge for real guests: one case in a pytest session of its own
    report      bisect.json, and the same as a table
    ask         the `labs bisect` command

Only axes, guests and ask know of machines; the search takes any `judge(name) -> Step`.
"""
