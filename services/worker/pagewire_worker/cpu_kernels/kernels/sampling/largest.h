// The job that sorts the largest values of rows; it is the same for every instruction set.
#pragma once
#include "../pool.h"

void largest_job(PwPool* pool, const void* arguments, int thread);
