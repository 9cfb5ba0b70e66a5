#!/bin/sh
# Makes a database in an empty PGDATA, then becomes the server; takes the variables that the image `postgres` takes. Over the network it is
# reached by TLS only; when the file CERTIFICATE is replaced, the next connection is shown the new one.
set -eu
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    initdb --username="$POSTGRES_USER" --pwfile="$POSTGRES_PASSWORD_FILE" --auth=scram-sha-256 \
        --encoding=UTF8 --locale=C.UTF-8
    echo 'hostssl all all all scram-sha-256' >> "$PGDATA/pg_hba.conf"
    echo "CREATE DATABASE $POSTGRES_DB" | postgres --single postgres
fi
# A database that was made when plain text was taken.
sed -i 's/^host all all all scram-sha-256$/hostssl all all all scram-sha-256/' "$PGDATA/pg_hba.conf"
follow_certificate() {
    shown=$(cksum "$CERTIFICATE")
    while sleep 2; do
        there=$(cksum "$CERTIFICATE") || continue
        # A server that is still coming up cannot be told: it is the next time.
        if [ "$there" != "$shown" ] && pg_ctl reload --silent; then shown=$there; fi
    done
}
# Not as a child of the server, which takes any child that ends for one of its own.
(follow_certificate &)
exec "$@" -c listen_addresses='*'
