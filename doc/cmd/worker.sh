# SPDX-License-Identifier: Apache-2.0
gpcd demo --block-size 16 --vram-blocks 10000 --daemonize --pidfile gpcd.pid
cc worker.c $(pkg-config --cflags --libs libgpc) -o worker
./worker; ./worker      # the second one finds all 63 blocks
gpc-inspect stat demo | grep -E '^live|hit'
kill $(cat gpcd.pid)    # ends the daemon; the cache stays ...
gpc-inspect rm demo     # ... until it is removed, when nobody uses it any more
