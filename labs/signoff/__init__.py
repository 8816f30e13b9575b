"""Sign-off: is a series safe to ship? Its cells are run, the decision is computed from what they left on disk.

    plan        what is asked for: the series, its cells, the cells of planted defects -> plan.json
    cells       the cells run, one pytest session each
    evidence    a folder -> what each cell left
    controls    is each invariant known to fail where it must?
    rules       evidence -> reasons against signing
    document    evidence -> sign-off.json, the same each time
    page        that -> sign-off.html; words: sign-off.md, junit.xml, trailers
    verify      is sign-off.json what the evidence gives?
    signature   the user's own key
    capsule     one cell, packed whole, and run elsewhere

    <folder>/plan.json  patches/  cells/<number>-<cell>/<run>/...  sign-off.{json,html,md}  junit.xml

Nothing but the folder goes into the document, so whoever has it can compute it again.
"""
