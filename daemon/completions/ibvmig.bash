# SPDX-License-Identifier: GPL-2.0-or-later
# bash completion of ibvmig: the program knows its commands, options, VMs and migrations.
_ibvmig()
{
	mapfile -t COMPREPLY < <(compgen -W \
		"$(ibvmig --complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)" \
		-- "${COMP_WORDS[COMP_CWORD]}")
}
complete -o default -F _ibvmig ibvmig
