#include <gtest/gtest.h>

#include <heddle/core/tensor/runtime.hpp>

// The main of every test program that runs without mpirun.
int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  heddle::Runtime const runtime;
  return RUN_ALL_TESTS();
}
