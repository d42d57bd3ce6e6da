#compdef engine
# zsh completion of engine; made by 'engine help --completion zsh'
_engine() {
    local -a found
    found=(${(f)"$(${~words[1]} complete -- "${(@)words[2,CURRENT]}" 2> /dev/null)"})
    [[ ${words[CURRENT]} == *=* ]] && compset -P '*='
    if ((!$#found)); then
        _files
    else
        compadd -S '' -- ${(M)found:#*=}
        compadd -- ${found:#*=}
    fi
}
if [[ $funcstack[1] == _engine ]]; then
    _engine "$@"
else
    compdef _engine engine
fi
