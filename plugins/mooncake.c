/* SPDX-License-Identifier: Apache-2.0 */
/* mooncake.c - placeholder */
