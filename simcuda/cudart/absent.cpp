// SPDX-License-Identifier: Apache-2.0
// Functions that torch names and that are not simulated: they say so. Declared without their arguments, which they do
// not look at; the runtime's header is not included here for that reason.
#include <string>

#include "export.h"

namespace simcuda {
int refuse_absent(const char* name);
}

#define ABSENT(name) \
  extern "C" SIMCUDA_EXPORT int name() { return simcuda::refuse_absent(#name); }

ABSENT(cudaGetDriverEntryPointByVersion)
ABSENT(cudaGetSymbolAddress)
ABSENT(cudaGraphAddNode)
ABSENT(cudaGraphConditionalHandleCreate)
ABSENT(cudaGraphNodeGetDependencies)
ABSENT(cudaIpcCloseMemHandle)
ABSENT(cudaIpcGetEventHandle)
ABSENT(cudaIpcGetMemHandle)
ABSENT(cudaIpcOpenEventHandle)
ABSENT(cudaIpcOpenMemHandle)
ABSENT(cudaKernelSetAttributeForDevice)
ABSENT(cudaLibraryGetKernel)
ABSENT(cudaLibraryLoadData)
ABSENT(cudaLibraryUnload)
ABSENT(cudaMemPoolGetAttribute)
ABSENT(cudaMemcpyToSymbol)
ABSENT(cudaStreamBeginCaptureToGraph)
ABSENT(cudaStreamUpdateCaptureDependencies)
