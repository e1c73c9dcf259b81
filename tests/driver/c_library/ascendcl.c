/* A libascendcl.so that notes what it is called with, and answers what it was told to. Build with
   -DLACKS_<function> to leave one out. */
#include "ascendcl.h"

#include <string.h>
#include <time.h>

/* what the next calls answer */
static int answer;
static uint64_t results[2];
static int64_t sleep_ns;
static char message[256];
static int has_message;

/* what the last call was given: numbers as they are, pointers as numbers; an out-pointer is not a number of its own */
static char called[64];
static uint64_t numbers[8];
static int count;
static char text[4096];
static int text_given;
static int calls;

void stub_answer(int code, uint64_t first, uint64_t second, int64_t ns) {
    answer = code;
    results[0] = first;
    results[1] = second;
    sleep_ns = ns;
}
void stub_message(const char *given) {
    has_message = given != NULL;
    strncpy(message, given != NULL ? given : "", sizeof message - 1);
}
const char *stub_called(void) { return called; }
int stub_count(void) { return count; }
int stub_calls(void) { return calls; }
uint64_t stub_number(int index) { return numbers[index]; }
const char *stub_text(void) { return text_given ? text : NULL; }

static void begin(const char *function) {
    strcpy(called, function);
    count = 0;
    text_given = 0;
    calls++;
}
static void number(uint64_t value) { numbers[count++] = value; }
static void pointer(const void *value) { number((uint64_t)(uintptr_t)value); }
static void string(const char *value) {
    text_given = value != NULL;
    if (value != NULL) strncpy(text, value, sizeof text - 1);
}
static int end(void) {
    if (sleep_ns > 0) {
        struct timespec wanted = {sleep_ns / 1000000000, sleep_ns % 1000000000};
        nanosleep(&wanted, NULL);
    }
    return answer;
}
static void handle(void **out, int which) { *out = (void *)(uintptr_t)results[which]; }

#ifndef LACKS_aclInit
int aclInit(const char *config) { begin("aclInit"); string(config); return end(); }
#endif
int aclFinalize(void) { begin("aclFinalize"); return end(); }
int aclrtSetDevice(int32_t device) { begin("aclrtSetDevice"); number((uint64_t)(int64_t)device); return end(); }
int aclrtResetDevice(int32_t device) { begin("aclrtResetDevice"); number((uint64_t)(int64_t)device); return end(); }
int aclrtCreateContext(void **context, int32_t device) {
    begin("aclrtCreateContext"); number((uint64_t)(int64_t)device); handle(context, 0); return end();
}
int aclrtDestroyContext(void *context) { begin("aclrtDestroyContext"); pointer(context); return end(); }
int aclrtSetCurrentContext(void *context) { begin("aclrtSetCurrentContext"); pointer(context); return end(); }
int aclrtMalloc(void **ptr, size_t size, int policy) {
    begin("aclrtMalloc"); number(size); number((uint64_t)(int64_t)policy); handle(ptr, 0); return end();
}
int aclrtMallocHost(void **ptr, size_t size) { begin("aclrtMallocHost"); number(size); handle(ptr, 0); return end(); }
int aclrtFree(void *ptr) { begin("aclrtFree"); pointer(ptr); return end(); }
int aclrtFreeHost(void *ptr) { begin("aclrtFreeHost"); pointer(ptr); return end(); }
static void copy(const char *name, void *dst, size_t dst_max, const void *src, size_t size, int kind) {
    begin(name); pointer(dst); number(dst_max); pointer(src); number(size); number((uint64_t)(int64_t)kind);
}
int aclrtMemcpy(void *dst, size_t dst_max, const void *src, size_t size, int kind) {
    copy("aclrtMemcpy", dst, dst_max, src, size, kind); return end();
}
int aclrtMemcpyAsync(void *dst, size_t dst_max, const void *src, size_t size, int kind, void *stream) {
    copy("aclrtMemcpyAsync", dst, dst_max, src, size, kind); pointer(stream); return end();
}
int aclrtDestroyStream(void *stream) { begin("aclrtDestroyStream"); pointer(stream); return end(); }
int aclrtSynchronizeStream(void *stream) { begin("aclrtSynchronizeStream"); pointer(stream); return end(); }
#ifndef LACKS_aclrtSynchronizeStreamWithTimeout
int aclrtSynchronizeStreamWithTimeout(void *stream, int32_t ms) {
    begin("aclrtSynchronizeStreamWithTimeout"); pointer(stream); number((uint64_t)(int64_t)ms); return end();
}
#endif
int aclrtSynchronizeDevice(void) { begin("aclrtSynchronizeDevice"); return end(); }
int aclrtUnSubscribeReport(uint64_t thread, void *stream) {
    begin("aclrtUnSubscribeReport"); number(thread); pointer(stream); return end();
}
int aclrtSubscribeReport(uint64_t thread, void *stream) {
    begin("aclrtSubscribeReport"); number(thread); pointer(stream); return end();
}
int aclmdlQuerySize(const char *path, size_t *work, size_t *weight) {
    begin("aclmdlQuerySize"); string(path); *work = results[0]; *weight = results[1]; return end();
}
#ifndef LACKS_aclmdlLoadFromFile
int aclmdlLoadFromFile(const char *path, uint32_t *model) {
    begin("aclmdlLoadFromFile"); string(path); *model = (uint32_t)results[0]; return end();
}
#endif
int aclmdlLoadFromMem(const void *data, size_t size, uint32_t *model) {
    begin("aclmdlLoadFromMem"); pointer(data); number(size); *model = (uint32_t)results[0]; return end();
}
static void memory(void *work, size_t work_size, void *weight, size_t weight_size) {
    pointer(work); number(work_size); pointer(weight); number(weight_size);
}
int aclmdlLoadFromFileWithMem(const char *path, uint32_t *model, void *work, size_t work_size, void *weight, size_t weight_size) {
    begin("aclmdlLoadFromFileWithMem"); string(path); memory(work, work_size, weight, weight_size);
    *model = (uint32_t)results[0]; return end();
}
int aclmdlLoadFromMemWithMem(const void *data, size_t size, uint32_t *model, void *work, size_t work_size, void *weight, size_t weight_size) {
    begin("aclmdlLoadFromMemWithMem"); pointer(data); number(size); memory(work, work_size, weight, weight_size);
    *model = (uint32_t)results[0]; return end();
}
int aclmdlExecuteAsync(uint32_t model, const void *inputs, void *outputs, void *stream) {
    begin("aclmdlExecuteAsync"); number(model); pointer(inputs); pointer(outputs); pointer(stream); return end();
}
#ifndef LACKS_aclmdlUnload
int aclmdlUnload(uint32_t model) { begin("aclmdlUnload"); number(model); return end(); }
#endif
const char *aclGetRecentErrMsg(void) { return has_message ? message : NULL; }
