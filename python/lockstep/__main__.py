# SPDX-License-Identifier: Apache-2.0
"""python3 -m lockstep is the command."""
import sys

from ._command import main

sys.exit(main())
