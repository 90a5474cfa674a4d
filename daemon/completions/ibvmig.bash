# SPDX-License-Identifier: GPL-2.0-or-later
# bash completion of ibvmig: the program knows its commands, options, VMs and migrations.
_ibvmig()
{
	local found quoted word=${COMP_WORDS[COMP_CWORD]}
	COMPREPLY=()
	# Not compgen -W: it would expand what stands in names, commands too.
	while IFS= read -r found; do
		printf -v quoted %q "$found"
		[[ $found == "$word"* || $quoted == "$word"* ]] && COMPREPLY+=("$quoted")
	done < <(ibvmig --complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
	return 0
}
complete -o default -F _ibvmig ibvmig
