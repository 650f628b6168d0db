// SPDX-License-Identifier: Apache-2.0
// A library that only has to exist: torch_npu's libraries name it, but need nothing that libascendcl does not have.
