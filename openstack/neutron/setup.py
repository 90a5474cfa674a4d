# SPDX-License-Identifier: GPL-2.0-or-later
import setuptools

setuptools.setup(setup_requires=['pbr>=2.0.0'], pbr=True)
