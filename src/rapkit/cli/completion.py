"""`rapkit completion`.

What a script gives to rapkit, and what it gets, is click's: words in variables, and a line (in zsh three) for each thing to offer. The
scripts are ours because click's lose `--option=` in zsh and fish, cut what fish says of a command at its first comma, and leave variables
behind in the shell.
"""

import os
from pathlib import PurePath

import click

_BASH = """\
_rapkit_complete() {
    local type value line=${COMP_LINE:0:COMP_POINT}
    # Bash takes --option=value and http://… for several words. The line is as it was typed; '' is the word that is only begun.
    [[ -n ${COMP_WORDS[COMP_CWORD]} ]] || line+="''"
    COMPREPLY=()
    while IFS=, read -r type value; do
        case $type in
            plain) COMPREPLY+=("$value") ;;
            file) compopt -o default ;;
            dir) compopt -o dirnames ;;
        esac
    done < <(env COMP_WORDS="$line" COMP_CWORD=-1 _RAPKIT_COMPLETE=bash_complete "$1" 2>/dev/null)
}

complete -o nosort -F _rapkit_complete rapkit
"""
_ZSH = """\
#compdef rapkit

_rapkit_complete() {
    local type value about found=1
    local -a told plain described
    told=("${(@f)$(env COMP_WORDS="${words[1,CURRENT]}" COMP_CWORD=$((CURRENT - 1)) _RAPKIT_COMPLETE=zsh_complete \\
        "$words[1]" 2>/dev/null)}")
    [[ $PREFIX == --*=* ]] && compset -P 1 '*='
    for type value about in "${told[@]}"; do
        case $type in
            plain) [[ $about == _ ]] && plain+=("$value") || described+=("$value:$about") ;;
            file) _files && found=0 ;;
            dir) _files -/ && found=0 ;;
        esac
    done
    (( $#described )) && _describe -V 'rapkit' described && found=0
    (( $#plain )) && compadd -V rapkit -a plain && found=0
    return found
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _rapkit_complete "$@"
else
    compdef _rapkit_complete rapkit
fi
"""
_FISH = """\
function __rapkit_complete
    set -l line (commandline --current-process --cut-at-cursor)
    set -l word (commandline --current-token --cut-at-cursor)
    set -l option (string match --regex -- '^--[^=]+=' $word)
    set -l value (string replace -- "$option" '' $word)
    set -l told (env COMP_WORDS="$line" COMP_CWORD="$word" _RAPKIT_COMPLETE=fish_complete rapkit 2>/dev/null)
    for each in $told
        set -l item (string split --max 1 , -- $each)
        switch $item[1]
            case plain
                echo -- "$option$item[2]"
            case file
                # A command without a name is completed with files.
                string replace --regex -- '^' "$option" (complete --do-complete="'' $value")
            case dir
                string replace --regex -- '^' "$option" (complete --do-complete="'' $value" | string match '*/')
        end
    end
end

complete --command rapkit --no-files --keep-order --arguments '(__rapkit_complete)'
"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
_WAYS = {
    "bash": """\
rapkit completion bash > ~/.rapkit-completion.bash
echo 'source ~/.rapkit-completion.bash' >> ~/.bashrc""",
    "zsh": """\
rapkit completion zsh > ~/.rapkit-completion.zsh
echo 'source ~/.rapkit-completion.zsh' >> ~/.zshrc    # behind the line with compinit""",
    "fish": """\
mkdir -p ~/.config/fish/completions
rapkit completion fish > ~/.config/fish/completions/rapkit.fish""",
}


@click.command()
@click.argument("shell", required=False, type=click.Choice(list(_SCRIPTS)))
def command(shell: str | None) -> None:
    """Print the script with which a shell completes rapkit's commands, options and files with the Tab key.

    \b
    eval "$(rapkit completion bash)"     try it, in this terminal
    rapkit completion                    how to have it in every terminal
    """  # noqa: D301 - to click, a backspace means: leave the lines of this paragraph as they are
    if shell is None:
        click.echo(_how_to_install(PurePath(os.environ.get("SHELL", "")).name))
        return
    click.echo(_SCRIPTS[shell], nl=False)


def _how_to_install(shell: str) -> str:
    shells = [shell] if shell in _WAYS else list(_WAYS)
    ways = [f"In {each}, do this once, then open a new terminal:\n\n{_indented(_WAYS[each])}\n" for each in shells]
    if len(shells) == 1:
        others = ", ".join(f"rapkit completion {each}" for each in _WAYS if each != shell)
        ways.append(f"Scripts for other shells: {others}")
    return "\n".join(ways).rstrip()


def _indented(lines: str) -> str:
    return "\n".join(f"    {line}" for line in lines.splitlines())
