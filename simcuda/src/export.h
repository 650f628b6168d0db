// SPDX-License-Identifier: Apache-2.0
#pragma once

#define SIMCUDA_EXPORT __attribute__((visibility("default")))
