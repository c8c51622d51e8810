# SPDX-License-Identifier: Apache-2.0
gpcd demo --block-size 16 --vram-blocks 10000 --daemonize --pidfile gpcd.pid
gpc-inspect stat demo | grep -A 1 '^POOL'
kill $(cat gpcd.pid)    # ends the daemon; the cache stays ...
gpc-inspect rm demo     # ... until it is removed
