"""How much a capsule, a run or an archive may ask of whoever reads it. Bounds that several readers share.

A bound is chosen far above what a job can write, and low enough that all of them together stay below 1 GiB of memory
and 10 s. Where a file may rightly be of any size (a process checkpoint, a log of months) nothing is bounded but what it
says it holds beyond its own bytes: a reader's memory grows with what lies on the disk, never with a number in a file.
"""

from __future__ import annotations

# A list of an installation's 100,000 files takes 10 MiB. As values JSON takes up to 24 times its bytes.
MAX_JSON_BYTES = 32 << 20
# Names, sizes and hashes of 100,000 files take 17 MiB.
MAX_MANIFEST_BYTES = 32 << 20
MAX_FILES = 100_000
# Files that one rank notes as read: what it reads after these is not in its capsule.
MAX_FILES_READ = 20_000
# Of one job; the emulator is tried with 65,536.
MAX_RANKS = 1 << 24
# Of one job that another tool's files are about: a world of which they say no more than its size has its members listed
# in 40 MiB.
MAX_IMPORTED_RANKS = 1 << 20
# Of an installation; its list in 32 MiB has no more where paths are as long as they are.
MAX_INSTALLED_FILES = 400_000
# Of one collective: an all_gather of lists has one for each rank of a world.
MAX_TENSORS = 1 << 16
# Of one tensor in another tool's files, whose number of elements is a product: torch's operators take 64.
MAX_DIMENSIONS = 256
# Different lists of tensors in one log, counted tensor by tensor beyond the entries of the records, which are as large
# as the log; lists that are equal are kept once. A step of 8,192 ranks that gathers into lists has 8,192 in a list, and
# the same lists in every step.
MAX_LISTED_TENSORS = 1 << 24
# Parsed images of a checkpoint: 65,530 mappings, Linux's own limit, take 4 MiB; 100,000 open files 10 MiB.
MAX_IMAGE_BYTES = 16 << 20
# The header of a safetensors file: 100,000 tensors take 12 MiB.
MAX_HEADER_BYTES = 32 << 20
# Values in the description of a state snapshot, one inside another.
MAX_STATE_DEPTH = 64
# The half of prismdbg in a capsule: 2 MiB, 200 files.
MAX_RANK_PACKAGE_BYTES = 32 << 20
MAX_RANK_PACKAGE_FILES = 2000
# A saved graph, unpacked: twelve million entries of ranks that differ.
MAX_GRAPH_BYTES = 512 << 20
# A window that zstandard may ask for; what `pack` writes asks for 2 MiB.
MAX_WINDOW_BYTES = 128 << 20
# What holes on a disk or zeros in an archive may grow into, for each byte that is really there and beyond the first
# GiB: logs are mostly zeros, allocated before they are written.
MAX_GROWTH = 4096
GROWTH_FREE_BYTES = 1 << 30
# Linux's own: of a path with the zero byte behind it, of one name in it. Components bound how deep folders are made.
MAX_PATH_BYTES = 4096
MAX_NAME_BYTES = 255
MAX_COMPONENTS = 256
# Folders that a replay makes for the rank's files, those on the way to them counted: what a list of a few MiB names can
# be a thousand times as many.
MAX_LISTED_NAMES = 10_000  # of files that a rank listed and did not read
MAX_MADE_FOLDERS = 200_000
# Of one list of paths, of calls or of words that a rank names of itself, or of a capsule's groups; and of what it says
# of its versions, of its machine, or in notes.
MAX_NAMED = 200_000
MAX_FACTS = 4096
# Linux's own, of what a program is started with: one argument, or one NAME=VALUE, with the zero byte behind it; and all
# of them together with a pointer to each, where the stack may be of any size.
MAX_STRING_BYTES = 128 << 10
MAX_START_BYTES = 6 << 20
# The system's types: of process ids, and of users' ids.
MAX_PID = (1 << 31) - 1
MAX_UID = (1 << 32) - 1
MAX_THREADS = 4096
# Of one process: torch's number of a GPU has seven bits.
MAX_DEVICES = 128
# In a snapshot of an allocator: of all devices together, each counted as often as it is listed. A segment has 2 MiB
# or more, so these are 512 GiB. The last number of a moment counts the entries of a history.
MAX_SEGMENTS = 1 << 18
MAX_BLOCKS = 1 << 19
MAX_ENTRIES = (1 << 20) - 1
# Of memory that a process had at its peak.
MAX_PEAK_BYTES = 1 << 50
