#!/usr/bin/env bash
# Starts emulators of object stores, runs the list of promises of crates/storage on them, and prints a table.
#
#   tests/stores.sh [FOLDER]
#
# Needs Python 3, npm and curl, and their registries the first time. FOLDER (.cache/stores) keeps what was installed.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(realpath -m "${1:-.cache/stores}")
mkdir -p "$work"
CARGO=${CARGO:-cargo}

if [ ! -x "$work/moto/bin/moto_server" ]; then
    python3 -m venv "$work/moto"
    "$work/moto/bin/pip" install --quiet --disable-pip-version-check 'moto[s3,server]>=5.1,<6'
fi
if [ ! -x "$work/azurite/node_modules/.bin/azurite-blob" ]; then
    npm install --silent --no-fund --no-audit --prefix "$work/azurite" azurite@3
fi

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}
s3=$(free_port)
blobs=$(free_port)
"$work/moto/bin/moto_server" -H 127.0.0.1 -p "$s3" > "$work/moto.log" 2>&1 &
moto=$!
"$work/azurite/node_modules/.bin/azurite-blob" --inMemoryPersistence --skipApiVersionCheck --silent \
    --blobHost 127.0.0.1 --blobPort "$blobs" > "$work/azurite.log" 2>&1 &
azurite=$!
trap 'kill "$moto" "$azurite" 2>/dev/null || true' EXIT

# Both answer something to anything once they listen.
for port in "$s3" "$blobs"; do
    curl --silent --output /dev/null --retry 60 --retry-delay 1 --retry-connrefused "http://127.0.0.1:$port/"
done

key='Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=='
account="http://127.0.0.1:$blobs/devstoreaccount1"
curl --silent --fail --output /dev/null -X PUT "http://127.0.0.1:$s3/bucket"
"$work/moto/bin/python" - "$account" "$key" <<'PYTHON'
import base64, datetime, hashlib, hmac, sys, urllib.request
account, key = sys.argv[1], base64.b64decode(sys.argv[2])
date = datetime.datetime.now(datetime.timezone.utc).strftime('%a, %d %b %Y %H:%M:%S GMT')
text = ('PUT\n' + '\n' * 11 + f'x-ms-date:{date}\nx-ms-version:2023-11-03\n'
        '/devstoreaccount1/devstoreaccount1/container\nrestype:container')
signature = base64.b64encode(hmac.new(key, text.encode(), hashlib.sha256).digest()).decode()
headers = {'x-ms-date': date, 'x-ms-version': '2023-11-03', 'Content-Length': '0',
           'Authorization': f'SharedKey devstoreaccount1:{signature}'}
request = urllib.request.Request(f'{account}/container?restype=container', method='PUT', headers=headers)
urllib.request.urlopen(request).read()
PYTHON

# moto knows no generations, which Google's conditions are made of; the stub in crates/testing does.
# moto finds the account of a request in a credential of Amazon's shape, whatever the header is that has one.
token='Credential=test/20260101/us-east-1/s3/aws4_request'
export SHARDMILL_STORES="
moto(S3) s3://bucket/conformance AWS_ENDPOINT_URL=http://127.0.0.1:$s3 AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test;
moto(GCS) gs://bucket/conformance GOOGLE_ENDPOINT_URL=http://127.0.0.1:$s3 GOOGLE_OAUTH_ACCESS_TOKEN=$token SKIP=create_only,one_of_eight_creates;
Azurite az://container/conformance AZURE_STORAGE_ENDPOINT=$account AZURE_STORAGE_ACCOUNT_NAME=devstoreaccount1 AZURE_STORAGE_ACCOUNT_KEY=$key"
status=0
$CARGO test --release --locked -p shardmill-storage --lib -- --exact remote::tests::conformance::real_stores --nocapture \
    > "$work/log" 2>&1 || status=$?
python3 - "$work/log" <<'PYTHON'
import sys
rows, stores = {}, []
for line in open(sys.argv[1], errors='replace'):
    if 'TABLE\t' not in line:
        continue
    _, store, promise, kept, _ = line.rstrip('\n').split('TABLE', 1)[1].split('\t')
    rows.setdefault(promise, {})[store] = kept
    if store not in stores:
        stores.append(store)
print('| promise | ' + ' | '.join(stores) + ' |')
print('|---' * (len(stores) + 1) + '|')
for promise, kept in rows.items():
    print(f'| {promise} | ' + ' | '.join(kept.get(store, '') for store in stores) + ' |')
PYTHON
if [ "$status" != 0 ]; then
    grep -A3 panicked "$work/log" >&2 || tail -20 "$work/log" >&2
fi
exit "$status"
