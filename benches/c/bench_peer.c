/*
 * libzookeeper-mt behind bench_peer's command line. TUNED=1 in the environment: without the look-up of the
 * servers' names in every turn of its loop, which is its default (ZOOKEEPER-1998).
 *
 *     cc -O2 -DTHREADED -o libzookeeper_mt bench_peer.c -lzookeeper_mt -lpthread
 *
 * get-seq, get-pipe, set-pipe, create-delete-pipe, children-10k, watch-fanout. It has no lock of its own.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <zookeeper/zookeeper.h>

enum { CHILDREN = 10000, SAMPLED = 16 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int connected, in_flight, events;
static char data[100];
static double *latencies;
static size_t taken;

static void fail(const char *why, int rc) {
    fprintf(stderr, "bench_peer: %s: %s\n", why, zerror(rc));
    exit(2);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

static void on_state(zhandle_t *zh, int type, int state, const char *path, void *context) {
    pthread_mutex_lock(&mutex);
    if (type == ZOO_SESSION_EVENT) connected = state == ZOO_CONNECTED_STATE;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

static void on_event(zhandle_t *zh, int type, int state, const char *path, void *context) {
    pthread_mutex_lock(&mutex);
    events--;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

/* `began` is when a sampled operation began, or null. */
static void answered(int rc, double *began) {
    if (rc != ZOK) fail("an operation failed", rc);
    pthread_mutex_lock(&mutex);
    if (began) {
        if (latencies) latencies[taken++] = now() - *began;
        free(began);
    }
    in_flight--;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

static void on_data(int rc, const char *value, int len, const struct Stat *stat, const void *began) {
    answered(rc, (double *)began);
}
static void on_stat(int rc, const struct Stat *stat, const void *began) { answered(rc, (double *)began); }
static void on_string(int rc, const char *path, const void *began) { answered(rc, (double *)began); }
static void on_void(int rc, const void *began) { answered(rc, (double *)began); }

/* Waits until there is room in the window for `more`. */
static void make_room(int window, int more) {
    pthread_mutex_lock(&mutex);
    while (in_flight + more > window) pthread_cond_wait(&changed, &mutex);
    in_flight += more;
    pthread_mutex_unlock(&mutex);
}

static double *sample(long index) {
    if (index % SAMPLED) return NULL;
    double *began = malloc(sizeof *began);
    *began = now();
    return began;
}

static void ensure(zhandle_t *zh, const char *path) {
    int rc = zoo_create(zh, path, data, sizeof data, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0);
    if (rc != ZOK && rc != ZNODEEXISTS) fail(path, rc);
}

static void must(int rc) {
    if (rc != ZOK) fail("a request was refused", rc);
}

static void run(zhandle_t *zh, const char *workload, long n, int window, double *record) {
    char path[64];
    if (!strcmp(workload, "get-seq")) {
        char buffer[1024];
        for (long i = 0; i < n; i++) {
            int len = sizeof buffer;
            double began = now();
            must(zoo_get(zh, "/bench/node", 0, buffer, &len, NULL));
            if (record) record[taken++] = now() - began;
        }
    } else if (!strcmp(workload, "children-10k")) {
        for (long i = 0; i < n; i++) {
            struct String_vector names;
            volatile size_t bytes = 0;
            double began = now();
            must(zoo_get_children(zh, "/bench/kids", 0, &names));
            for (int k = 0; k < names.count; k++) bytes += strlen(names.data[k]);
            deallocate_String_vector(&names);
            if (record) record[taken++] = now() - began;
        }
    } else if (!strcmp(workload, "create-delete-pipe")) {
        for (long i = 0; i < n; i += 2) {
            make_room(2 * window, 2);
            snprintf(path, sizeof path, "/bench/pair-%ld", i / 2 % (window + 1));
            must(zoo_acreate(zh, path, data, sizeof data, &ZOO_OPEN_ACL_UNSAFE, 0, on_string, sample(i)));
            must(zoo_adelete(zh, path, -1, on_void, NULL));
        }
    } else {
        int get = !strcmp(workload, "get-pipe"), fan_out = !strcmp(workload, "watch-fanout");
        for (long i = 0; i < n; i++) {
            make_room(window, 1);
            if (get) {
                must(zoo_aget(zh, "/bench/node", 0, on_data, sample(i)));
                continue;
            }
            if (fan_out) snprintf(path, sizeof path, "/bench/watched/w-%010ld", i);
            must(zoo_aset(zh, fan_out ? path : "/bench/node", data, sizeof data, -1, on_stat, sample(i)));
        }
    }
    make_room(0, 0);
    pthread_mutex_lock(&mutex);
    while (events > 0) pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
}

static void watch(zhandle_t *zh, long n) {
    char path[64], buffer[1024];
    events = n;
    for (long i = 0; i < n; i++) {
        int len = sizeof buffer;
        snprintf(path, sizeof path, "/bench/watched/w-%010ld", i);
        ensure(zh, path);
        must(zoo_wget(zh, path, on_event, NULL, buffer, &len, NULL));
    }
}

static int by_value(const void *left, const void *right) {
    double difference = *(const double *)left - *(const double *)right;
    return difference > 0 ? 1 : difference < 0 ? -1 : 0;
}

static double seconds(struct timeval time) { return time.tv_sec + time.tv_usec / 1e6; }

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: bench_peer HOST:PORT WORKLOAD N EXTRA\n");
        return 2;
    }
    const char *workload = argv[2];
    long n = atol(argv[3]);
    int window = atoi(argv[4]), tuned = getenv("TUNED") && !strcmp(getenv("TUNED"), "1");
    if (!window) window = !strcmp(workload, "get-pipe") ? 1000 : 200;
    if (!strcmp(workload, "create-delete-pipe")) n += n % 2;
    memset(data, 7, sizeof data);
    zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
    zhandle_t *zh = zookeeper_init(argv[1], on_state, 30000, NULL, NULL, 0);
    if (!zh) return 2;
    if (tuned) zoo_set_servers_resolution_delay(zh, -1);
    pthread_mutex_lock(&mutex);
    while (!connected) pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);

    ensure(zh, "/bench");
    ensure(zh, "/bench/node");
    int children = !strcmp(workload, "children-10k"), fan_out = !strcmp(workload, "watch-fanout");
    if (!children && !fan_out && strcmp(workload, "get-seq") && strcmp(workload, "get-pipe") &&
        strcmp(workload, "set-pipe") && strcmp(workload, "create-delete-pipe")) {
        fprintf(stderr, "bench_peer: no workload %s\n", workload);
        return 2;
    }
    if (children) {
        struct String_vector names;
        ensure(zh, "/bench/kids");
        must(zoo_get_children(zh, "/bench/kids", 0, &names));
        for (int i = 0; names.count != CHILDREN && i < CHILDREN; i++) {
            char path[64];
            snprintf(path, sizeof path, "/bench/kids/child-%010d", i);
            ensure(zh, path);
        }
        deallocate_String_vector(&names);
    }
    if (fan_out) ensure(zh, "/bench/watched");

    if (fan_out) watch(zh, n / 5);
    run(zh, workload, n / 5, window, NULL);
    if (fan_out) watch(zh, n);
    double *record = malloc((n + 1) * sizeof *record);
    latencies = record;
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    double began = now();
    run(zh, workload, n, window, record);
    double elapsed = now() - began;
    getrusage(RUSAGE_SELF, &after);
    qsort(record, taken, sizeof *record, by_value);
    double p50 = taken ? record[(taken - 1) * 50 / 100] : 0, p99 = taken ? record[(taken - 1) * 99 / 100] : 0;
    printf("{\"peer\":\"%s\",\"workload\":\"%s\",\"n\":%ld,\"ops_per_s\":%.0f,\"us_per_op\":%.4f,\"p50_us\":%.1f,"
           "\"p99_us\":%.1f,\"cpu_user_s\":%.6f,\"cpu_sys_s\":%.6f}\n",
           tuned ? "c-mt-tuned" : "c-mt", workload, n, n / elapsed * 1e6, elapsed / n, p50, p99,
           seconds(after.ru_utime) - seconds(before.ru_utime), seconds(after.ru_stime) - seconds(before.ru_stime));
    zookeeper_close(zh);
    return 0;
}
