"""Drive: start what fits, take in what ends, try again what met infrastructure trouble, until nothing is left."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from labs.deadline import Deadline
from labs.errors import NoSpace
from labs.provision.budget import RESERVE_MB, available_memory_mb
from labs.report.record import Run, append_line
from labs.run.begin import Tasks
from labs.run.builds import Build
from labs.run.children import Child, settle, start_build, start_cell, stop
from labs.run.past import TASKS_FILE
from labs.run.plan import todo
from labs.run.schedule import Need, Queue
from labs.run.show import View

POLL = 0.1
PATIENCE = 900.0  # seconds for which nothing runs because others have taken the host's memory or disk


def host(records: Path) -> Need:
    """What this host has left for guests: memory, cores, disk for records."""
    cores = len(os.sched_getaffinity(0))
    return Need(available_memory_mb() - RESERVE_MB, cores, shutil.disk_usage(records).free >> 20)


class Drive:
    """One run, driven to its end."""

    def __init__(
        self, run: Run, tasks: Tasks, queue: Queue, builds: Mapping[str, Build], scratch: Path, view: View
    ) -> None:
        self.run, self.tasks, self.queue, self.builds = run, tasks, queue, builds
        self.scratch, self.view = scratch, view
        self.children: list[Child] = []
        self.waited = ""
        self.idle = Deadline(PATIENCE, "a guest to fit")

    def go(self) -> None:
        """Until every cell has had its turn; what is raised meanwhile ends all that runs."""
        try:
            while self.queue.waiting or self.children:
                self._take_in()
                self._start()
                self.view.show(self.children, self.queue)
                time.sleep(POLL)
        finally:
            stop(self.children)

    def _start(self) -> None:
        while True:
            running = [child.task for child in self.children]
            room = replace(host(self.run.path), cores=self.queue.capacity.cores)
            task, why = self.queue.take(running, room)
            if task is None:
                break
            if task.build:
                self.children.append(start_build(self.run, task, self.builds[task.id].cell, self.scratch))
            else:
                self.children.append(start_cell(self.run, task, self.tasks.plan.request.suites, self.scratch))
            self.view.started(task)
        if why and why != self.waited and "jobs run" not in why:
            self.view.said(why)
            self.waited = why
        if self.children:
            self.idle = Deadline(PATIENCE, "a guest to fit")
        elif self.queue.waiting and self.idle.expired:
            raise NoSpace(f"{why}; nothing has run for {PATIENCE:.0f} s", mend="end other programs, or labs clean")

    def _take_in(self) -> None:
        for child in list(self.children):
            code = child.ended()
            if code is None:
                continue
            self.children.remove(child)
            self._note(child, code)
            self.queue.done.add(child.task.id)
            if child.task.build:
                self.view.built(child, code)
            else:
                self._cell_ended(child, code)

    def _cell_ended(self, child: Child, code: int) -> None:
        settle(self.run, child, code)
        record = self.run.cell(child.task.id)
        again = todo(record)
        if again:
            self.queue.put(self.tasks.cell(child.task.id, again))
        self.view.ended(child, record.results(), again, self.children, self.queue)

    def _note(self, child: Child, code: int) -> None:
        task = child.task
        ended = 0 if code in (0, 1) else code  # pytest's 1: some case failed
        row = {"task": task.id, "seconds": round(child.seconds, 2), "expected": round(task.seconds, 2), "ended": ended}
        append_line(self.run.path / TASKS_FILE, json.dumps(row).encode() + b"\n")
