/* SPDX-License-Identifier: Apache-2.0 */
/* A remote store behind TLS: a real redis-server with a certificate of an authority that lives as
 * long as this test.  Who shows another one's certificate, or none that the server wants, is not
 * talked to, which is said.
 * Tests: plugins/redis/options.c plugins/redis/conn.c */
#include "config.h"

#include "t/lib/tap.h"

#if !defined(HAVE_HIREDIS) || !defined(HAVE_HIREDIS_SSL)
int main(void)
{
	plan_skip_all(
		"the plugin for Redis of this build has no TLS: that needs hiredis 1.0 or later, with hiredis_ssl");
	return 0;
}
#else
#include "t/lib/redis.h"

#define N     64u
#define BYTES (64u << 10)

static char plugin[512];
static struct server server;
static struct images m;
static int port;

static void make(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void make(const char *fmt, ...)
{
	char command[4096];
	va_list ap;
	int n = snprintf(command, sizeof(command), "cd '%s' && exec >>openssl.log 2>&1 && ",
			 remote_dir);

	va_start(ap, fmt);
	vsnprintf(command + n, sizeof(command) - (size_t)n, fmt, ap);
	va_end(ap);
	if (system(command))
		bail("%s", command);
}

/* An authority, and what it has signed: NAME-ca.pem, NAME.pem, NAME.key. */
static void authority(const char *name)
{
	make("openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj '/CN=authority %s' -keyout %s-ca.key -out %s-ca.pem",
	     name, name, name);
	make("openssl req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout %s.key -out %s.csr && "
	     "openssl x509 -req -days 2 -in %s.csr -CA %s-ca.pem -CAkey %s-ca.key -CAcreateserial -out %s.pem",
	     name, name, name, name, name, name);
}

static void serve(const char *auth_clients)
{
	char tls_port[16], cert[300], key[300], ca[300];

	snprintf(tls_port, sizeof(tls_port), "%d", port);
	snprintf(cert, sizeof(cert), "%s/own.pem", remote_dir);
	snprintf(key, sizeof(key), "%s/own.key", remote_dir);
	snprintf(ca, sizeof(ca), "%s/own-ca.pem", remote_dir);
	server_start(&server, "tls", 0, "--tls-port", tls_port, "--tls-cert-file", cert,
		     "--tls-key-file", key, "--tls-ca-cert-file", ca, "--tls-auth-clients",
		     auth_clients, NULL);
}

/* ca, cert: names of authorities; NULL: none is given. */
static struct remote *start(const char *ca, const char *cert)
{
	char spec[4096];
	int n = snprintf(spec, sizeof(spec), "%s:server=127.0.0.1:%d", plugin, port);

	if (ca)
		n += snprintf(spec + n, sizeof(spec) - (size_t)n, ",tls-ca=%s/%s-ca.pem",
			      remote_dir, ca);
	if (cert)
		snprintf(spec + n, sizeof(spec) - (size_t)n,
			 ",tls-cert=%s/%s.pem,tls-key=%s/%s.key,tls-name=localhost", remote_dir,
			 cert, remote_dir, cert);
	return remote_start(spec, NULL, BYTES, 2000);
}

static void there_and_back(const char *cert)
{
	struct remote *r = start("own", cert);

	ok(remote_until(r, REMOTE_UP), "the store answers through TLS");
	images_put(&m, 0);
	is_int(remote_put(r, 0, m.b, N, 0), N, "%u images are stored", N);
	images_want(&m, 0);
	is_int(remote_get(r, 1, m.b, N, 0), N, "and come back");
	is_int(images_wrong(&m), 0, "with their bytes");
	is_int(images_with(&m, 0), N, "all of them");
	remote_close(r);
}

/* Nothing is sent to a server of another authority, or in the clear. */
static void down(const char *ca, const char *cert, const char *why)
{
	struct remote *r = start(ca, cert);
	struct remote_state s;

	is_int(remote_status(r), REMOTE_DOWN, "%s: the store is down", why);
	remote_state(r, &s);
	ok(ca == NULL ||
		   strstr(s.why,
			  "the handshake of TLS has failed: is the server's certificate signed by tls-ca") !=
			   NULL,
	   "which says: %s", s.why);
	images_put(&m, 5000);
	is_int(remote_put(r, 0, m.b, N, 0), 0, "nothing is stored");
	is_int(server_ask(&server, NULL, "DBSIZE"), N, "the server has got nothing");
	remote_close(r);
}

static void ends_and_comes_back(void)
{
	struct remote *r = start("own", NULL);

	ok(remote_until(r, REMOTE_UP), "the store is up");
	server_kill(&server);
	images_want(&m, 0);
	is_int(remote_get(r, 0, m.b, N, 0), 0, "the server is killed: all of it is a miss");
	ok(remote_until(r, REMOTE_DOWN), "the store is down");
	serve("no");
	ok(remote_until(r, REMOTE_UP), "it is there again, and found");
	images_put(&m, 0);
	is_int(remote_put(r, 0, m.b, N, 0), N, "and takes what it is given");
	kill(server.pid, SIGSTOP);
	images_want(&m, 0);
	is_int(remote_get(r, 0, m.b, N, 0), 0, "the server is stopped: all of it is late");
	ok(remote_until(r, REMOTE_DOWN), "the store is down");
	kill(server.pid, SIGCONT);
	ok(remote_until(r, REMOTE_UP), "it goes on, and is found");
	images_want(&m, 0);
	is_int(remote_get(r, 0, m.b, N, 0), N, "with what it has");
	is_int(images_wrong(&m), 0, "byte for byte");
	remote_close(r);
}

static void refused(const char *more, const char *sentence)
{
	struct remote_options o = { .image_bytes = BYTES, .lanes = 1 };
	struct remote *r = NULL;
	char spec[2048];

	snprintf(spec, sizeof(spec), "%s:server=127.0.0.1:%d%s", plugin, port, more);
	o.spec = spec;
	is_int(remote_open(&o, &r), -EINVAL, "%s is refused", more);
	if (!ok(strstr(gpc_last_error(), sentence) != NULL, "which says: %s", sentence))
		diag("it says: %s", gpc_last_error());
}

static int body(void)
{
	if (!redis_program())
		plan_skip_all("there is no redis-server");
	if (!remote_plugin("redis", plugin, sizeof(plugin)))
		plan_skip_all("this build has no plugin for Redis");
	if (system("openssl version >/dev/null 2>&1"))
		plan_skip_all("there is no openssl, which makes certificates");
	port = 26000 + (int)getpid() % 2000 * 3;
	images_make(&m, N, BYTES);
	authority("own");
	authority("other");
	serve("no");
	there_and_back(NULL);
	down("other", NULL, "the server's certificate is of another authority");
	down(NULL, NULL, "no TLS, with a server that has nothing else at that port");
	ends_and_comes_back();
	server_kill(&server);
	serve("yes");
	there_and_back("own");
	down("own", NULL, "the server wants a certificate, and there is none");
	down("own", "other", "it wants one of its own authority, and ours is another's");
	refused(",tls-ca=/etc/none.pem", "tls-ca=/etc/none.pem: ");
	refused(",tls-cert=/x", "tls-cert without tls-ca");
	refused(",tls-ca=/x,tls-cert=/x", "tls-cert and tls-key go together");
	server_kill(&server);
	return done_testing();
}

int main(void)
{
	remote_dir_make();
	return tap_guard(100, body, remote_dir_remove);
}
#endif
