# redis-cli over TLS with a client certificate.
set -eu
cli="redis-cli --tls --cacert $TLS/ca.crt -p $TLS_PORT"
with="$cli --cert $TLS/ada.crt --key $TLS/ada.key"
want() { [ "$1" = "$2" ] || { echo "got '$1', wanted '$2'"; exit 1; }; }
want "$($with ping)" PONG
want "$($with set k v)" OK
want "$($with get k)" v
want "$(printf 'incr n\nincr n\n' | $with | tail -1)" 2
if $cli ping 2>&1 | grep -q PONG; then echo "served without a certificate"; exit 1; fi
if redis-cli --tls --cacert "$TLS/ada.crt" --cert "$TLS/ada.crt" --key "$TLS/ada.key" -p "$TLS_PORT" ping 2>&1 | grep -q PONG; then
    echo "trusts the wrong authority"
    exit 1
fi
want "$($with acl setuser bob on '>pw' '~b:*' '+@read' '+ping')" OK
want "$($with --user bob --pass pw --no-auth-warning get b:1)" ""
case "$($with --user bob --pass pw --no-auth-warning set b:1 x 2>&1)" in *NOPERM*) ;; *) echo "no NOPERM"; exit 1 ;; esac
if [ -n "${BY_CERTIFICATE:-}" ]; then want "$($with acl whoami)" ada; fi
