# SPDX-License-Identifier: GPL-2.0-or-later
# fish completion of ibvmig: the program knows its commands, options, VMs and migrations.
function __ibvmig
	set -l words (commandline -opc) (commandline -ct)
	set -l found (ibvmig --complete $words[2..-1] 2>/dev/null)
	if set -q found[1]
		printf '%s\n' $found
	else
		__fish_complete_path $words[-1]
	end
end
complete -c ibvmig -f -a '(__ibvmig)'
