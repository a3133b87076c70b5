/* In front of the C library of a FUSE server: while the file $SLOW_WHILE exists, each reply waits for $SLOW_MS. */
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

ssize_t writev(int descriptor, const struct iovec *parts, int count) {
    static ssize_t (*real)(int, const struct iovec *, int);
    if (real == NULL) real = (ssize_t (*)(int, const struct iovec *, int))dlsym(RTLD_NEXT, "writev");
    const char *sign = getenv("SLOW_WHILE"), *milliseconds = getenv("SLOW_MS");
    if (sign != NULL && milliseconds != NULL && access(sign, F_OK) == 0) usleep((useconds_t)atoi(milliseconds) * 1000);
    return real(descriptor, parts, count);
}
