// Lets the wall clock of single processes jump, and slows their files: loaded before the C library,
// it reads 64-bit numbers of nanoseconds from a shared file, at the process's id. One is added to
// CLOCK_REALTIME, the other one is slept before each call that reads, writes or syncs a file.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

namespace {

constexpr std::size_t kSlots = 1 << 16;

volatile std::int64_t* Numbers() {
    static volatile std::int64_t* numbers = [] {
        const char* path = std::getenv("CHAOS_FILE");
        const int file = path == nullptr ? -1 : open(path, O_RDONLY | O_CLOEXEC);
        if (file < 0) return static_cast<volatile std::int64_t*>(nullptr);
        void* memory = mmap(nullptr, kSlots * 16, PROT_READ, MAP_SHARED, file, 0);
        close(file);
        return memory == MAP_FAILED ? nullptr : static_cast<volatile std::int64_t*>(memory);
    }();
    return numbers;
}

template <typename Function>
Function Real(const char* name) {
    return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

void Slow(int file) {
    volatile std::int64_t* numbers = Numbers();
    if (numbers == nullptr) return;
    const std::int64_t wait = numbers[kSlots + getpid() % kSlots];
    struct stat found;
    if (wait == 0 || fstat(file, &found) != 0 || !S_ISREG(found.st_mode)) return;
    const struct timespec time = {wait / 1000000000, wait % 1000000000};
    nanosleep(&time, nullptr);
}

void Add(struct timespec* time) {
    volatile std::int64_t* numbers = Numbers();
    if (numbers == nullptr) return;
    const std::int64_t sum = time->tv_nsec + numbers[getpid() % kSlots];
    std::int64_t seconds = sum / 1000000000, rest = sum % 1000000000;
    if (rest < 0) {
        rest += 1000000000;
        --seconds;
    }
    time->tv_sec += seconds;
    time->tv_nsec = rest;
}

}  // namespace

extern "C" int clock_gettime(clockid_t clock, struct timespec* time) {
    static const auto real = Real<int (*)(clockid_t, struct timespec*)>("clock_gettime");
    const int result = real(clock, time);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) Add(time);
    return result;
}

extern "C" time_t time(time_t* into) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (into != nullptr) *into = now.tv_sec;
    return now.tv_sec;
}

extern "C" int gettimeofday(struct timeval* __restrict now, void* __restrict) {
    struct timespec found;
    const int result = clock_gettime(CLOCK_REALTIME, &found);
    now->tv_sec = found.tv_sec;
    now->tv_usec = found.tv_nsec / 1000;
    return result;
}

extern "C" ssize_t read(int file, void* into, size_t size) {
    static const auto real = Real<ssize_t (*)(int, void*, size_t)>("read");
    Slow(file);
    return real(file, into, size);
}

extern "C" ssize_t write(int file, const void* from, size_t size) {
    static const auto real = Real<ssize_t (*)(int, const void*, size_t)>("write");
    Slow(file);
    return real(file, from, size);
}

extern "C" ssize_t pread64(int file, void* into, size_t size, off64_t at) {
    static const auto real = Real<ssize_t (*)(int, void*, size_t, off64_t)>("pread64");
    Slow(file);
    return real(file, into, size, at);
}

extern "C" ssize_t pwrite64(int file, const void* from, size_t size, off64_t at) {
    static const auto real = Real<ssize_t (*)(int, const void*, size_t, off64_t)>("pwrite64");
    Slow(file);
    return real(file, from, size, at);
}

extern "C" ssize_t writev(int file, const struct iovec* parts, int count) {
    static const auto real = Real<ssize_t (*)(int, const struct iovec*, int)>("writev");
    Slow(file);
    return real(file, parts, count);
}

extern "C" int fsync(int file) {
    static const auto real = Real<int (*)(int)>("fsync");
    Slow(file);
    return real(file);
}

extern "C" int fdatasync(int file) {
    static const auto real = Real<int (*)(int)>("fdatasync");
    Slow(file);
    return real(file);
}
