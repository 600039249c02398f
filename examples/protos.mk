# What every example compiles: the public API and what it is made of.
PROTO_FOLDER := $(abspath $(dir $(lastword $(MAKEFILE_LIST)))/../protos)
PROTOS := $(addprefix pagewire/, \
	common/v1/error common/v1/pooling common/v1/sampling common/v1/structured_outputs common/v1/usage \
	frontend/v1/inference frontend/v1/tools)
PROTO_FILES := $(addsuffix .proto,$(PROTOS))
