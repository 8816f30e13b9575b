"""Two cells compared by how long operations take. The unit is a boot. In the order in which data flows:

measures    the measures of a suite, from its measures.toml
boots       one boot of a cell that measures and ends -> Samples
paired      statistics of pairs: sign-flip test, bootstrap interval, Holm
looks       when to stop early, at which error rate
judge       rounds -> Comparison; pure, so that it can be done again from raw files
guards      what else the host did meanwhile; a disturbed round is repeated
record      raw samples, guards and decision on disk; append-only, resumable, recomputable
drive       interleaved rounds until there is a decision
show        table and plot
cells       both cells made, and measured
check       the comparison's own false-alarm rate and power, from recorded boots
ask         the `labs compare` command
"""

from labs.compare.judge import Comparison, Round, compared

__all__ = ["Comparison", "Round", "compared"]
