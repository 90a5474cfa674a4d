# SPDX-License-Identifier: GPL-2.0-or-later
# Neutron's own base classes patch with eventlet: that comes before everything else.
import neutron.tests.unit  # noqa: F401
