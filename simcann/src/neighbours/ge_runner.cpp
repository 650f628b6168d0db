// SPDX-License-Identifier: Apache-2.0
// libge_runner: the graph engine, which is not simulated. TorchAir's native modules are loaded with all their symbols
// bound, so every function they name has to exist; calling one is an error. The names are those that the linker uses.
#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>

namespace {

[[noreturn]] void refuse(const char* symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(symbol, nullptr, nullptr, &status),
                                                         &std::free);
  throw std::runtime_error("simcann: the graph engine is not simulated, but " +
                           std::string(status == 0 ? name.get() : symbol) +
                           " was called; use TorchAir's reduce-overhead mode");
}

}  // namespace

#define SIMCANN_ABSENT(symbol) \
  extern "C" __attribute__((visibility("default"))) void symbol() { refuse(#symbol); }

SIMCANN_ABSENT(_ZN2ge10GEFinalizeEv)
SIMCANN_ABSENT(_ZN2ge10TensorDesc11SetDataTypeENS_8DataTypeE)
SIMCANN_ABSENT(_ZN2ge10TensorDesc12SetPlacementENS_9PlacementE)
SIMCANN_ABSENT(_ZN2ge10TensorDesc14SetOriginShapeERKNS_5ShapeE)
SIMCANN_ABSENT(_ZN2ge10TensorDesc15SetOriginFormatENS_6FormatE)
SIMCANN_ABSENT(_ZN2ge10TensorDesc9SetFormatENS_6FormatE)
SIMCANN_ABSENT(_ZN2ge10TensorDescC1Ev)
SIMCANN_ABSENT(_ZN2ge12GEInitializeERKSt3mapINS_12AscendStringES1_St4lessIS1_ESaISt4pairIKS1_S1_EEE)
SIMCANN_ABSENT(_ZN2ge13GEGetErrorMsgEv)
SIMCANN_ABSENT(_ZN2ge13GetFormatNameENS_6FormatE)
SIMCANN_ABSENT(_ZN2ge15OperatorFactory14CreateOperatorEPKcS2_)
SIMCANN_ABSENT(_ZN2ge15OperatorFactory9IsExistOpEPKc)
SIMCANN_ABSENT(_ZN2ge17GEGetWarningMsgV2Ev)
SIMCANN_ABSENT(_ZN2ge5Graph28LoadFromSerializedModelArrayEPKvm)
SIMCANN_ABSENT(_ZN2ge5Graph8CopyFromERKS0_)
SIMCANN_ABSENT(_ZN2ge5GraphC1EPKc)
SIMCANN_ABSENT(_ZN2ge5ShapeC1ERKSt6vectorIlSaIlEE)
SIMCANN_ABSENT(_ZN2ge6Tensor11SetDataTypeERKNS_8DataTypeE)
SIMCANN_ABSENT(_ZN2ge6Tensor11SetShapeDimEml)
SIMCANN_ABSENT(_ZN2ge6Tensor12SetPlacementERKNS_9PlacementE)
SIMCANN_ABSENT(_ZN2ge6Tensor13SetTensorDescERKNS_10TensorDescE)
SIMCANN_ABSENT(_ZN2ge6Tensor14SetShapeDimNumEm)
SIMCANN_ABSENT(_ZN2ge6Tensor17SetOriginShapeDimEml)
SIMCANN_ABSENT(_ZN2ge6Tensor20SetOriginShapeDimNumEm)
SIMCANN_ABSENT(_ZN2ge6Tensor7GetDataEv)
SIMCANN_ABSENT(_ZN2ge6Tensor7SetDataEPhmRKSt8functionIFvS1_EE)
SIMCANN_ABSENT(_ZN2ge6Tensor9ResetDataEPhmRKSt8functionIFvS1_EE)
SIMCANN_ABSENT(_ZN2ge6Tensor9ResetDataEv)
SIMCANN_ABSENT(_ZN2ge6Tensor9SetFormatERKNS_6FormatE)
SIMCANN_ABSENT(_ZN2ge6TensorC1Ev)
SIMCANN_ABSENT(_ZN2ge7Session11RemoveGraphEj)
SIMCANN_ABSENT(_ZN2ge7Session12CompileGraphEj)
SIMCANN_ABSENT(_ZN2ge7Session23GetCompiledGraphSummaryEj)
SIMCANN_ABSENT(_ZN2ge7Session23RunGraphWithStreamAsyncEjPvRKSt6vectorINS_6TensorESaIS3_EERS5_)
SIMCANN_ABSENT(_ZN2ge7Session23SetGraphConstMemoryBaseEjPKvm)
SIMCANN_ABSENT(_ZN2ge7Session28UpdateGraphFeatureMemoryBaseEjPKvm)
SIMCANN_ABSENT(_ZN2ge7Session30SetGraphFixedFeatureMemoryBaseEjPKvm)
SIMCANN_ABSENT(_ZN2ge7Session39UpdateGraphRefreshableFeatureMemoryBaseEjPKvm)
SIMCANN_ABSENT(_ZN2ge7Session8AddGraphEjRKNS_5GraphERKSt3mapINS_12AscendStringES5_St4lessIS5_ESaISt4pairIKS5_S5_EEE)
SIMCANN_ABSENT(_ZN2ge7Session8RunGraphEjRKSt6vectorINS_6TensorESaIS2_EERS4_)
SIMCANN_ABSENT(_ZN2ge7SessionC1ERKSt3mapINS_12AscendStringES2_St4lessIS2_ESaISt4pairIKS2_S2_EEE)
SIMCANN_ABSENT(_ZN2ge7SessionD1Ev)
SIMCANN_ABSENT(_ZN2ge8Operator15UpdateInputDescEPKcRKNS_10TensorDescE)
SIMCANN_ABSENT(_ZNK2ge10TensorDesc11GetDataTypeEv)
SIMCANN_ABSENT(_ZNK2ge10TensorDesc12GetPlacementEv)
SIMCANN_ABSENT(_ZNK2ge10TensorDesc8GetShapeEv)
SIMCANN_ABSENT(_ZNK2ge10TensorDesc9GetFormatEv)
SIMCANN_ABSENT(_ZNK2ge20CompiledGraphSummary15GetOutputDtypesERSt6vectorINS_8DataTypeESaIS2_EE)
SIMCANN_ABSENT(_ZNK2ge20CompiledGraphSummary15GetOutputShapesERSt6vectorINS_5ShapeESaIS2_EE)
SIMCANN_ABSENT(_ZNK2ge20CompiledGraphSummary18GetConstMemorySizeERm)
SIMCANN_ABSENT(_ZNK2ge20CompiledGraphSummary20GetFeatureMemorySizeERm)
SIMCANN_ABSENT(_ZNK2ge20CompiledGraphSummary25GetFixedFeatureMemorySizeERm)
SIMCANN_ABSENT(_ZNK2ge20CompiledGraphSummary31GetFeatureMemoryBaseRefreshableERb)
SIMCANN_ABSENT(_ZNK2ge20CompiledGraphSummary8IsStaticEv)
SIMCANN_ABSENT(_ZNK2ge5GNode7GetTypeERNS_12AscendStringE)
SIMCANN_ABSENT(_ZNK2ge5Graph10SaveToFileEPKc)
SIMCANN_ABSENT(_ZNK2ge5Graph11GetAllNodesEv)
SIMCANN_ABSENT(_ZNK2ge5Shape7GetDimsEv)
SIMCANN_ABSENT(_ZNK2ge6Tensor11GetDataTypeEv)
SIMCANN_ABSENT(_ZNK2ge6Tensor11GetShapeDimEm)
SIMCANN_ABSENT(_ZNK2ge6Tensor12GetPlacementEv)
SIMCANN_ABSENT(_ZNK2ge6Tensor13GetTensorDescEv)
SIMCANN_ABSENT(_ZNK2ge6Tensor14GetShapeDimNumEv)
SIMCANN_ABSENT(_ZNK2ge6Tensor20GetOriginShapeDimNumEv)
SIMCANN_ABSENT(_ZNK2ge6Tensor7GetDataEv)
SIMCANN_ABSENT(_ZNK2ge6Tensor9GetFormatEv)
SIMCANN_ABSENT(_ZNK2ge7Session25RegisterExternalAllocatorEPKvSt10shared_ptrINS_9AllocatorEE)
SIMCANN_ABSENT(_ZNK2ge8Operator25GetAllIrAttrNamesAndTypesERSt3mapINS_12AscendStringES2_St4lessIS2_ESaISt4pairIKS2_S2_EEE)
