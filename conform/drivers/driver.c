/* The driver of ZooKeeper's C client for `docent conform client`: `driver CONNECT`. */

#define _GNU_SOURCE
#define THREADED
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zookeeper/zookeeper.h>

enum { MAX_DATA = 4 << 20, MAX_WORDS = 5 };

static zhandle_t *client;
static char data[MAX_DATA];

static const char *word(int state) {
    if (state == ZOO_CONNECTED_STATE || state == ZOO_READONLY_STATE) {
        return "connected";
    }
    return state == ZOO_EXPIRED_SESSION_STATE ? "expired" : "suspended";
}

static void state_changed(zhandle_t *zh, int type, int state, const char *path, void *context) {
    if (type == ZOO_SESSION_EVENT) {
        printf("! state %s\n", word(state));
    }
}

static void watched(zhandle_t *zh, int type, int state, const char *path, void *context) {
    if (type != ZOO_SESSION_EVENT) {
        printf("! event %s\n", path);
    }
}

/* Waits for 20 s at most. */
static int connect_to(const char *servers, int timeout) {
    client = zookeeper_init(servers, state_changed, timeout, NULL, NULL, 0);
    if (client == NULL) {
        return ZSYSTEMERROR;
    }
    for (int tries = 0; tries < 2000; tries++) {
        if (zoo_state(client) == ZOO_CONNECTED_STATE) {
            return ZOK;
        }
        usleep(10000);
    }
    return ZCONNECTIONLOSS;
}

static int multi(const char *first, const char *second) {
    zoo_op_t ops[2];
    zoo_op_result_t results[2];
    zoo_create_op_init(&ops[0], first, "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0);
    zoo_create_op_init(&ops[1], second, "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0);
    return zoo_multi(client, 2, ops, results);
}

/* Carries out a task; what it answers is in `value`, and for a read in `data`. */
static int carry_out(const char *servers, char **words, char *value, size_t size) {
    const char *verb = words[1], *path = words[2];
    struct Stat stat;
    struct String_vector children;
    int rc, length = MAX_DATA - 1;
    if (strcmp(verb, "connect") == 0) {
        return connect_to(servers, atoi(path));
    } else if (strcmp(verb, "create") == 0) {
        return zoo_create(client, path, words[3], strlen(words[3]), &ZOO_OPEN_ACL_UNSAFE, 0, value, size);
    } else if (strcmp(verb, "get") == 0) {
        rc = zoo_get(client, path, 0, data, &length, &stat);
        if (rc == ZOK) {
            data[length < 0 ? 0 : length] = 0;
            snprintf(value, size, "%d ", stat.version);
        }
        return rc;
    } else if (strcmp(verb, "set") == 0) {
        rc = zoo_set2(client, path, words[3], strlen(words[3]), words[4] ? atoi(words[4]) : -1, &stat);
        snprintf(value, size, "%d", stat.version);
        return rc;
    } else if (strcmp(verb, "delete") == 0) {
        return zoo_delete(client, path, -1);
    } else if (strcmp(verb, "children") == 0) {
        rc = zoo_get_children(client, path, 0, &children);
        if (rc == ZOK) {
            /* They are not freed: a driver serves for one case. */
            snprintf(value, size, "%d", children.count);
        }
        return rc;
    } else if (strcmp(verb, "watch") == 0) {
        rc = zoo_wexists(client, path, watched, NULL, &stat);
        snprintf(value, size, "%s", rc == ZOK ? "true" : "false");
        return rc == ZNONODE ? ZOK : rc;
    } else if (strcmp(verb, "multi") == 0) {
        return multi(path, words[3]);
    } else if (strcmp(verb, "state") == 0) {
        snprintf(value, size, "%s", word(zoo_state(client)));
        return ZOK;
    }
    return zookeeper_close(client);
}

/* The client's text of an error without spaces, in capitals: "no node" is NONODE. */
static void name_error(int rc, char *name, size_t size) {
    size_t length = 0;
    for (const char *text = zerror(rc); *text && length + 1 < size; text++) {
        if (isalpha((unsigned char)*text)) {
            name[length++] = (char)toupper((unsigned char)*text);
        }
    }
    name[length] = 0;
}

int main(int argc, char **argv) {
    char *line = NULL, value[256];
    size_t capacity = 0;
    if (argc < 2) {
        return 64;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    zoo_set_debug_level(0);
    while (getline(&line, &capacity, stdin) > 0) {
        char *words[MAX_WORDS] = {NULL}, *rest = line;
        for (int at = 0; at < MAX_WORDS; at++) {
            words[at] = strsep(&rest, " \n");
        }
        int is_close = strcmp(words[1], "close") == 0;
        value[0] = data[0] = 0;
        int rc = carry_out(argv[1], words, value, sizeof(value));
        if (rc == ZOK) {
            printf("%s ok %s%s\n", words[0], value, data);
        } else {
            name_error(rc, value, sizeof(value));
            printf("%s error %s\n", words[0], value);
        }
        if (is_close) {
            break;
        }
    }
    return 0;
}
