# SPDX-License-Identifier: GPL-2.0-or-later
# fish completion of ibvmig: the program knows its commands, options, VMs and migrations.
function __ibvmig
	set -l words (commandline -opc) (commandline -ct)
	ibvmig --complete $words[2..-1] 2>/dev/null
end
complete -c ibvmig -f -a '(__ibvmig)'
