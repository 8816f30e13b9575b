"""The suite against its planted defects: a case that was never seen to fail proves nothing.

defects   series of patches/ -> what is planted where, and which invariants it must break
boots     one boot is one pytest session of chosen cases; what was seen goes to boots.jsonl, a line a boot
tally     boots -> invariant x defect: how often caught, how soon; false alarms of clean boots
command   `labs prove`
"""
