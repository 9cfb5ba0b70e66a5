#!/bin/sh
# Makes a database in an empty PGDATA, then becomes the server; takes the variables that the image `postgres` takes.
set -eu
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    initdb --username="$POSTGRES_USER" --pwfile="$POSTGRES_PASSWORD_FILE" --auth=scram-sha-256 \
        --encoding=UTF8 --locale=C.UTF-8
    echo 'host all all all scram-sha-256' >> "$PGDATA/pg_hba.conf"
    echo "CREATE DATABASE $POSTGRES_DB" | postgres --single postgres
fi
exec "$@" -c listen_addresses='*'
