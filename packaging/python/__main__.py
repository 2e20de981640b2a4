# SPDX-License-Identifier: Apache-2.0
"""python3 -m lockstep is the command."""
import sys

from lockstep import main

sys.exit(main())
