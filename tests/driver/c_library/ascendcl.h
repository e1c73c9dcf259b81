/* The prototypes of pyACL reference section 21, in its order: what a direct call of libascendcl.so must look like. */
#ifndef ASCENDCL_H
#define ASCENDCL_H

#include <stddef.h>
#include <stdint.h>

typedef int aclError;

aclError aclInit(const char *config);
aclError aclFinalize(void);
aclError aclrtSetDevice(int32_t device);
aclError aclrtResetDevice(int32_t device);
aclError aclrtCreateContext(void **context, int32_t device);
aclError aclrtDestroyContext(void *context);
aclError aclrtSetCurrentContext(void *context);
aclError aclrtMalloc(void **ptr, size_t size, int policy);
aclError aclrtMallocHost(void **ptr, size_t size);
aclError aclrtFree(void *ptr);
aclError aclrtFreeHost(void *ptr);
aclError aclrtMemcpy(void *dst, size_t dst_max, const void *src, size_t count, int kind);
aclError aclrtMemcpyAsync(void *dst, size_t dst_max, const void *src, size_t count, int kind, void *stream);
aclError aclrtDestroyStream(void *stream);
aclError aclrtSynchronizeStream(void *stream);
aclError aclrtSynchronizeStreamWithTimeout(void *stream, int32_t ms);
aclError aclrtSynchronizeDevice(void);
aclError aclrtUnSubscribeReport(uint64_t thread_id, void *stream);
aclError aclrtSubscribeReport(uint64_t thread_id, void *stream);
aclError aclmdlQuerySize(const char *path, size_t *work, size_t *weight);
aclError aclmdlLoadFromFile(const char *path, uint32_t *model_id);
aclError aclmdlLoadFromMem(const void *model, size_t size, uint32_t *model_id);
aclError aclmdlLoadFromFileWithMem(const char *path, uint32_t *model_id, void *work, size_t work_size, void *weight, size_t weight_size);
aclError aclmdlLoadFromMemWithMem(const void *model, size_t size, uint32_t *model_id, void *work, size_t work_size, void *weight, size_t weight_size);
aclError aclmdlExecuteAsync(uint32_t model_id, const void *inputs, void *outputs, void *stream);
aclError aclmdlUnload(uint32_t model_id);
const char *aclGetRecentErrMsg(void);

#endif
