"""`labs` on the fake lab, as `python -m fake_labs run`; with LAB_FINDS=archive names are looked up in its lists."""

from __future__ import annotations

import fake_lab

from labs.__main__ import main

if __name__ == "__main__":
    fake_lab.pytest_configure()
    main()
