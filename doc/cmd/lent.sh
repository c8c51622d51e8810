# SPDX-License-Identifier: Apache-2.0
gpcd demo --block-size 16 --max-blocks 100 --daemonize --pidfile gpcd.pid
cc lent.c $(pkg-config --cflags --libs libgpc) -o lent
./lent
kill $(cat gpcd.pid) && gpc-inspect rm demo
