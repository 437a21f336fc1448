#pragma once

#include <heddle/io/dataset/demo_data.hpp>
#include <heddle/io/preparation/prepare.hpp>

#include "test.hpp"

namespace heddle {

/// Prepares the demo's texts.
class PrepareTest : public ::testing::Test {
 protected:
  PrepareTest() {
    DemoDataOptions demo;
    demo.directory = inputs_.path();
    demo.train = 400;
    demo.valid = 20;
    demo.test = 1;
    write_demo_data(demo);
    options_.source = {inputs_ / "train.en"};
    options_.target = {inputs_ / "train.de"};
    options_.valid_source = {inputs_ / "valid.en"};
    options_.valid_target = {inputs_ / "valid.de"};
    options_.vocabulary_size = 90;
    options_.directory = outputs_ / "deep" / "data";
  }

  PrepareReport run() const {
    std::ostringstream progress;
    return prepare(options_, progress);
  }

  /// The error message of preparing, after a check that it left no files.
  std::string failure() const {
    std::string const message = message_of<Error>([&] { run(); });
    EXPECT_NE(message, "");
    EXPECT_TRUE(outputs_.names().empty()) << "something was left behind after: " << message;
    return message;
  }

  TemporaryDirectory inputs_;
  TemporaryDirectory outputs_;
  PrepareOptions options_;
};

}  // namespace heddle
