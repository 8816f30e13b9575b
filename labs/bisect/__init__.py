"""Bisect: the first bad, or the first good, candidate along any ordered axis. In the order in which data flows:

    step        what came of one run of one candidate, and the log of steps on disk
    plan        candidates in order, what is asked of them; steps counted by candidate
    posterior   noise: where the change is, how likely, and which run tells most
    segments    outcomes that change more than once
    search      plan and steps -> the next question, or the answer; pure, so a log replays and resumes
    subset      the fewest changes that still show it (delta debugging)
    drive       asks a judge until there is an answer
    simulate    how often simulated searches end right, and in how many runs
    axis        candidates in order, and the cell of each
    parts       changes that add up: patches of a series, options between two configs, what two cells differ in
    commits     commits of a local tree
    axes        which of them was asked for; kernels and runtimes of the archive
    guests      the judge for real guests: one case in a pytest session of its own
    ahead       the next candidates' artifacts, made while one is judged
    changes     what changed at a boundary: changelogs, commits
    page        bisect.html
    report      bisect.json, and the same as lines
    ask         the `labs bisect` command
    judge       the `labs judge` command, for git bisect

Only the axes, guests and ask know of machines; the search takes any `judge(name) -> Step`.
"""
