# A folder of tests/ declares what it builds. Later ones use the names of those before.
include tests/lab/build.mk tests/guest/build.mk tests/fake/build.mk tests/sim/build.mk tests/unit/build.mk tests/fuzz/build.mk
